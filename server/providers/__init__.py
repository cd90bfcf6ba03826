"""The models this server asks: embedders, each behind ``embedder.Embedder``."""
