"""Which single fault or peculiarity is on."""
FAULT = None
PEC = None


def on(fault_id):
    return FAULT == fault_id


def pec(pec_id):
    return PEC == pec_id
