"""Where code that is built comes from: packages, git, tarballs, and series of patches."""
