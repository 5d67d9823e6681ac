"""How devices share a run: the mesh, what lies where, what is exchanged, and many hosts."""
