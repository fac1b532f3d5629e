"""Jobs in worker processes, over shared memory and without locks."""
