// The routes of both HTTP families.
import Fastify from 'fastify';
import { fault, peculiar } from './switches.js';
import { Refusal, accountOf, answerError, pause, written } from './http.js';
import * as views from './views.js';
import * as wallet from './wallet.js';
import { inference } from './inference.js';
import { readConfig, changeConfig } from './configuration.js';
import { nativeRoutes } from './native.js';

const GUARDED = [
  ['GET', '/wallet/balance', wallet.balance], ['POST', '/wallet/send', wallet.send],
  ['GET', '/wallet/transactions', wallet.history], ['POST', '/wallet/stake', wallet.stake],
  ['POST', '/wallet/unstake', wallet.unstake], ['GET', '/peers', views.listPeers], ['GET', '/layers', views.listLayers],
  ['GET', '/config', readConfig], ['PATCH', '/config', changeConfig], ['GET', '/proofs', views.listProofs],
];
const OPEN = [
  ['GET', '/status', views.status], ['GET', '/metrics', views.metrics], ['GET', '/health', views.health], ['GET', '/network', views.network],
];

export function buildServer() {
  const app = Fastify({ logger: false, bodyLimit: 4 * 1024 * 1024 });
  const prefix = fault('api-without-v1') ? '/api' : '/api/v1';
  if (fault('body-charset-refused')) {
    app.addHook('onRequest', async (request) => {
      if (/charset/.test(request.headers['content-type'] ?? '')) throw new Refusal(415, 'UNSUPPORTED_MEDIA_TYPE', 'No charset here.');
    });
  }
  if (fault('chunked-body-refused')) {
    app.addHook('onRequest', async (request) => {
      if (request.headers['transfer-encoding']) throw new Refusal(411, 'LENGTH_REQUIRED', 'Give a length.');
    });
  }
  if (peculiar('more-headers')) {
    app.addHook('onSend', async (request, reply) => { reply.header('x-request-id', 'r1').header('cache-control', 'no-store').header('access-control-allow-origin', '*'); });
  }
  if (peculiar('closes-connections')) app.addHook('onSend', async (request, reply) => { reply.header('connection', 'close'); });
  app.setErrorHandler((error, request, reply) => {
    return answerError(error, reply);
  });
  app.setNotFoundHandler((request, reply) => {
    if (fault('unknown-path-200')) return reply.send({ ok: true });
    return answerError(new Refusal(404, 'NOT_FOUND', 'There is no such route.'), reply);
  });

  const answer = (handler) => async (request, reply) => {
    await pause();
    const value = await handler(request, reply);
    if (reply.sent || value === reply) return reply;
    let type = peculiar('json-charset') ? 'application/json; charset=utf-8' : 'application/json';
    if (fault('json-as-text')) type = 'text/plain';
    let text = written(value);
    if (fault('json-nan') && request.url.endsWith('/metrics')) text = text.replace(/"requests_per_minute":[\d.]+/, '"requests_per_minute":NaN');
    if (fault('json-duplicate-key') && request.url.endsWith('/status')) text = text.replace('"version"', '"status":"running","version"');
    reply.header('content-type', type);
    if (peculiar('chunked-bodies')) {
      reply.hijack();
      reply.raw.writeHead(reply.statusCode, { 'content-type': type });
      for (let at = 0; at < text.length; at += 40) reply.raw.write(text.slice(at, at + 40));
      reply.raw.end();
      return reply;
    }
    return reply.send(Buffer.from(text));
  };
  // The guard comes before the body is read, so that a bad token is refused whatever the body is.
  const guard = (path) => async (request) => {
    if (fault('body-before-token') && request.method !== 'GET') return;
    if (fault('query-before-token') && Object.values(request.query).some((one) => !/^\d+$/.test(one))) {
      throw new Refusal(400, 'INVALID_REQUEST', 'A parameter is no number.');
    }
    if (fault('config-patch-unauthorised-acts') && request.method === 'PATCH') return;
    accountOf(request, path);
  };
  for (const [method, path, handler] of OPEN) {
    if (fault('metrics-guarded') && path === '/metrics') app.get(prefix + path, { onRequest: guard(path) }, answer(handler));
    else app.route({ method, url: prefix + path, handler: answer(handler) });
  }
  for (const [method, path, handler] of GUARDED) {
    let verb = method;
    if (fault('config-put') && method === 'PATCH') verb = 'PUT';
    if (fault('unstake-delete') && path === '/wallet/unstake') verb = 'DELETE';
    let url = path;
    app.route({ method: verb, url: prefix + url, onRequest: guard(path), handler: answer(handler) });
  }
  app.post(`${prefix}/inference`, { onRequest: guard('/inference') }, async (request, reply) => { await pause(); return inference(request, reply); });
  const training = fault('training-under-v1') ? '/api/v1/training' : '/api/training';
  const guarded = fault('training-guarded') ? { onRequest: guard('/training') } : {};
  app.get(`${training}/global`, guarded, answer(views.trainingGlobal));
  app.get(`${training}/verify`, guarded, answer(views.trainingVerify));
  nativeRoutes(app);
  return app;
}
