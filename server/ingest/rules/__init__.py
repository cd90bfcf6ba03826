"""Rules: what a conversation says that is worth remembering, in Chinese and English, without a model.

A message is cleaned, split into sentences and clauses, and each is refused (a question, a thank-you), decided
by the first template that fits it, or passed over. Everything is a function of its arguments.
"""
