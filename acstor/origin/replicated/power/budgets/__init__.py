"""Sources of the power budget, behind one interface."""
