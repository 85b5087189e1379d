"""EventGPT and Video-LLaVA: modules, inputs, loading."""
