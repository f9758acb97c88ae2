"""The LLM agent: a model behind any OpenAI-compatible server rewrites kernels, the bench judges them."""
