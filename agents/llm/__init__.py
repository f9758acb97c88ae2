"""The LLM agent: a model behind any OpenAI-compatible server rewrites CUDA C++ kernels, the bench judges them."""
