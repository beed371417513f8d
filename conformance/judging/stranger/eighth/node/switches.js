// The command line, and the two kinds of switches that it sets.
import { parseArgs } from 'node:util';

const { values } = parseArgs({
  options: {
    port: { type: 'string', default: '8000' },
    fault: { type: 'string', default: '' },
    peculiar: { type: 'string', default: '' },
    list: { type: 'boolean', default: false },
  },
});

export const port = Number(values.port);
export const grpcPort = port + 1000;
export const listOnly = values.list;
export const activeFault = values.fault;
export const activePeculiar = values.peculiar;

/** True when the node was started with this fault. */
export const fault = (id) => activeFault === id;

/** True when the node was started with this peculiarity. */
export const peculiar = (id) => activePeculiar === id;

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
