// The routes of the public native API.
import { fault, peculiar } from './switches.js';
import { pause, written } from './http.js';
import * as chain from './chain.js';
import * as gateway from './gateway.js';
import { rpc } from './rpc.js';

function json(reply, status, value) {
  return reply.code(status).header('content-type', 'application/json').send(Buffer.from(written(value)));
}
const failed = (reply, status, message) => {
  if (peculiar('native-plain-errors')) return reply.code(status).type('text/plain').send(message);
  return json(reply, status, { error: message });
};
const answer = (make) => async (request, reply) => {
  await pause();
  try {
    return json(reply, 200, make(request));
  } catch (error) {
    if (!(error instanceof gateway.NativeError)) throw error;
    return failed(reply, error.status, error.message);
  }
};

const registered = new Set();

export function nativeRoutes(app) {
  app.get('/healthz', async (request, reply) => {
    if (fault('healthz-404')) return failed(reply, 404, 'no route');
    if (peculiar('healthz-503')) return failed(reply, 503, 'catching up');
    if (peculiar('healthz-text')) return reply.type('text/plain').send('ok\n');
    return json(reply, 200, { ready: true, height: chain.height() });
  });
  const get = (path, make, id) => {
    if (id && fault(id)) return;
    app.get(path, answer(make));
  };
  get('/api/network', gateway.network);
  get('/api/model', gateway.model);
  get('/api/model/checkpoint.json', gateway.checkpoint, 'no-model-checkpoint');
  get('/api/training', (request) => gateway.training(request.query));
  get('/api/blocks', (request) => gateway.blocks(request.query));
  get(fault('block-path-plural') ? '/api/blocks/:height' : '/api/block/:height', (request) => gateway.block(request.params.height));
  get('/api/account', (request) => gateway.account(request.query));
  get('/api/validators', (request) => gateway.validators(request.query), 'no-validators');
  get('/api/inference', gateway.inferenceInfo, 'no-inference-info');
  get(fault('request-id-in-path') ? '/api/inference/request/:id' : '/api/inference/request',
    (request) => gateway.inferenceRequest(fault('request-id-in-path') ? request.params : request.query));
  get('/work/status', gateway.workStatus, 'no-work-status');

  const bytes = (path, data) => app.get(path, async (request, reply) => {
    await pause();
    return reply.header('content-type', 'application/json').send(data());
  });
  bytes('/network/genesis.json', () => chain.genesisBytes);
  const data = () => {
    return chain.dataset;
  };
  bytes('/network/dataset.json', data);

  app.get('/artifacts/sha256/:digest', async (request, reply) => {
    await pause();
    const { digest } = request.params;
    let found = chain.artifacts.get(digest);
    const near = (start) => [...chain.artifacts].find(([name]) => name.startsWith(start))?.[1];
    if (!found) return failed(reply, 404, 'there is no such artifact');
    if (fault('artifact-newline')) found = Buffer.concat([found, Buffer.from('\n')]);
    if (fault('artifact-in-json')) return json(reply, 200, { sha256: digest, content: found.toString('base64') });
    return reply.header('content-type', 'application/octet-stream').send(found);
  });

  for (const name of ['poll', 'result']) {
    if (fault('no-work-result') && name === 'result') continue;
    app.post(`/work/${name}`, async (request, reply) => {
      const message = request.body;
      if (message === null || typeof message !== 'object') {
        return failed(reply, 400, 'this is no message');
      }
      const unchecked = (fault('work-unsigned-accepted') && !message.signature)
        || (fault('work-result-unchecked') && name === 'result');
      if (!unchecked && !chain.signed(message)) return failed(reply, 401, 'the signature does not fit');
      return json(reply, 200, name === 'poll' ? { work: null, retry_after_seconds: 5 } : { accepted: false, reason: 'there is no such job' });
    });
  }

  app.route({ method: 'POST', url: '/rpc', handler: async (request, reply) => {
    await pause();
    const result = rpc(request.body ?? request.query);
    return json(reply, 200, result);
  } });

  const changed = new Map();
  const view = async (request, reply) => {
    const path = request.params['*'];
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      if (fault('reference-put-stores') && request.method === 'PUT') { changed.set(path, request.body ?? {}); return json(reply, 200, { stored: true }); }
      reply.header('allow', 'GET, HEAD');
      return failed(reply, 405, 'these data can only be read');
    }
    if (changed.has(path)) return changed.get(path) === null ? failed(reply, 404, 'removed') : json(reply, 200, changed.get(path));
    return answer(() => gateway.reference(path))(request, reply);
  };
  if (!fault('no-reference')) app.all('/reference/v03/api/*', view);

  for (const path of ['/register', '/api/register', '/api/auth/register', '/api/v1/register']) {
    app.route({ method: ['GET', 'POST', 'PUT'], url: path, handler: async (request, reply) => {
      if (fault('register-registers') && request.method === 'POST') { registered.add(request.body); return json(reply, 201, { id: registered.size, api_key: 'k-1' }); }
      return failed(reply, 410, 'there is no registration any more');
    } });
  }
  for (const path of ['/login', '/signup', '/auth/login', '/auth/signup']) {
    app.get(path, async (request, reply) => {
      if (fault('login-410')) return failed(reply, 410, 'there are no accounts');
      const code = peculiar('permanent-redirects') ? 308 : 302;
      return reply.redirect(peculiar('redirect-with-host') ? `http://${request.headers.host}/join` : '/join', code);
    });
  }
  app.get('/join', async (request, reply) => reply.type('text/html').send('<!doctype html><title>Join</title><p>Run a node to join.'));
}
