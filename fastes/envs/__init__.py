"""How an env argument becomes a factory that builds the environment in any process."""
