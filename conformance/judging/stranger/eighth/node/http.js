// What all routes of the node API share: errors, the guard, and the form of answers.
import { fault, peculiar, sleep } from './switches.js';
import { tokens, expired } from './state.js';

export class Refusal extends Error {
  constructor(status, code, message, details) {
    super(message);
    this.status = status;
    this.code = code;
    this.details = details;
  }
}
export const bad = (message) => new Refusal(400, peculiar('other-error-codes') ? 'E_BAD' : 'INVALID_REQUEST', message);

export function errorBody(error) {
  const code = error.code;
  const message = peculiar('other-error-texts') ? 'Das geht so nicht.' : error.message;
  if (fault('error-flat') && error.status === 401) return { code, message };
  const body = { error: { code, message } };
  if (error.details) body.error.details = error.details;
  if (fault('unauthorized-details') && error.status === 401) body.error.details = { realm: 'node' };
  return body;
}

export const unauthorized = () => new Refusal(
  fault('unauthorized-403') ? 403 : 401,
  fault('unauthorized-code-lowercase') ? 'unauthorized' : 'UNAUTHORIZED',
  'The token is unknown or has expired.',
);

const open = (method, path) => (fault('open-peers') && path === '/peers');

let lastGood = null;
let refusals = 0;

/** The account of a request's token; throws where there is none. */
export function accountOf(request, path) {
  const header = request.headers.authorization ?? '';
  const [, scheme, token] = /^\s*(\S+)\s+(\S.*?)\s*$/.exec(header) ?? [];
  const method = request.method;
  if (open(method, path)) return tokens.get('tok-a');
  if (fault('unguarded-stream') && path === '/inference' && (request.body === undefined || request.body?.stream === true)) {
    return tokens.get('tok-a');
  }
  if (fault('token-in-query') && request.query.access_token !== undefined) return tokens.get('tok-a');
  if (fault('connection-keeps-account')) {
    if (tokens.has(token)) request.raw.socket.account = tokens.get(token);
    else if (!header && request.raw.socket.account) return request.raw.socket.account;
  }
  if (fault('connection-sticks-refused')) {
    if (request.raw.socket.refused) throw unauthorized();
    if (!tokens.has(token)) request.raw.socket.refused = true;
  }
  if (fault('connection-first-account') && tokens.has(token)) {
    request.raw.socket.account ??= tokens.get(token);
    return request.raw.socket.account;
  }
  if (fault('any-scheme') && tokens.has(token)) return tokens.get(token);
  if (fault('bare-token') && tokens.has(header.trim())) return tokens.get(header.trim());
  if (fault('missing-token-served') && !header && method === 'GET') return tokens.get('tok-a');
  if (fault('empty-bearer-served') && /^bearer\s*$/i.test(header)) return tokens.get('tok-a');
  if (!scheme || !/^bearer$/i.test(scheme)) {
    if (fault('missing-token-400')) throw new Refusal(400, 'MISSING_TOKEN', 'There is no bearer token.');
    throw unauthorized();
  }
  if (fault('token-prefix') && token.startsWith('tok-a')) return tokens.get('tok-a');
  if (fault('token-case') && tokens.has(token.toLowerCase())) return tokens.get(token.toLowerCase());
  if (expired.has(token)) {
    if (fault('expired-reads') && method === 'GET') return tokens.get('tok-b');
    if (fault('expired-writes') && method !== 'GET') return tokens.get('tok-b');
    if (fault('expired-other-code')) throw new Refusal(401, 'TOKEN_EXPIRED', 'The token has expired.');
    throw unauthorized();
  }
  const found = tokens.get(token);
  if (!found) {
    refusals += 1;
    if (fault('unknown-token-guest') && path === '/wallet/balance') return tokens.get('tok-b');
    throw unauthorized();
  }
  if (fault('lockout-after-refusals') && refusals >= 3) {
    refusals = 0;
    throw unauthorized();
  }
  return found;
}

/** Turns a thrown value into an answer of the node API. */
export function answerError(error, reply) {
  let refusal = error;
  if (!(error instanceof Refusal)) {
    const status = error.statusCode ?? 500;
    const code = { 400: bad('').code, 404: 'NOT_FOUND', 413: 'TOO_LARGE', 415: 'UNSUPPORTED_MEDIA_TYPE' }[status];
    refusal = new Refusal(status, code ?? (status < 500 ? 'REFUSED' : 'INTERNAL'), error.message);
  }
  if (refusal.status === 401 && peculiar('www-authenticate')) reply.header('www-authenticate', 'Bearer realm="node"');
  return reply.code(refusal.status).type('application/json').send(errorBody(refusal));
}

const reversed = (value) => {
  if (Array.isArray(value)) return value.map(reversed);
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).reverse().map(([key, inner]) => [key, reversed(inner)]));
};

/** Text of an answer; the peculiarities change its form and not its meaning. */
export function written(value) {
  let result = value;
  if (peculiar('reversed-fields')) result = reversed(result);
  if (peculiar('extra-fields') && result && typeof result === 'object' && !Array.isArray(result)) {
    result = { ...result, x_build: 'toy', x_notes: [] };
  }
  let text = JSON.stringify(result, null, peculiar('indented-json') ? 2 : 0);
  if (peculiar('escaped-json')) text = text.replace(/[^\x20-\x7e\n]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
  if (peculiar('trailing-newline')) text += '\n';
  return text;
}
export const pause = () => (peculiar('slow-answers') ? sleep(150) : undefined);
