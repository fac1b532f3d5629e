"""The live page of `fastes watch`: a server that reads run folders, and the page that it serves."""
