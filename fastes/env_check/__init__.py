"""What a task is like: check_env plays it at random, again, in C and with new policies, and tells of what is odd."""
