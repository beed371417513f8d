"""A node of another stack, written from the interface alone, with faults to switch on."""
