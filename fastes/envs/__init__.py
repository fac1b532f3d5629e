"""An env argument becomes a source that builds the environment in any process.

source.py has the way in: `make_env_source` takes an id, a spec, an object, a vector environment or a function. It uses

- given/ for an object: rebuild.py takes it apart, changes.py finds what was set in it, later_changes.py watches it;
- factories.py for functions, and for copies of an object without a spec;
- vector/ for vector environments, which are driven as they are;
- worker_imports.py and worker_number.py for what a worker process has to know besides;
- as_registered.py for the differences from the id's own environment, which presets and targets need;
- layers.py, likeness.py, closing.py for wrappers, comparisons and the end;
- advice.py and mujoco_messages.py for errors and warnings in words.

returned.py checks results of `reset` and `step`. import_hook.py registers the environments in tasks/ and atari/.
"""
