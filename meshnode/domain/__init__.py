"""Pure core: no trio, torch, sockets or clock; time and randomness are arguments."""
