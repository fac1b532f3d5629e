"""One job: one candidate's episodes."""
