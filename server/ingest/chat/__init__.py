"""What a chat model makes of a conversation: facts, and how they stand to what is remembered already.

A model's answer is data like any other: it is read tolerantly, checked like what a caller sends, and what of
it can't be used is told as an issue. It can name only memories that it was shown.
"""
