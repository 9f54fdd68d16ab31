"""One module for each revision; a module that was released never changes."""
