"""`liebig doctor`: checks of the installation and of a folder."""
