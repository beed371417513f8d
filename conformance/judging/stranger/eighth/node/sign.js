// Signs messages for the toy chain with a public test key.
//   node sign.js request '{"nonce":0,"prompt":"Hello","expires_at_height":200}'   prints the transaction
//   node sign.js work '{"worker":"w1"}'                                          prints a message of the worker protocol
// Fields that are given replace the defaults; "provider":"silent" names the provider that never answers.
import { createPrivateKey, createPublicKey, sign } from 'node:crypto';
import { createHash } from 'node:crypto';

const hex = (text) => createHash('sha256').update(text).digest('hex');
const canonical = (value) => {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (value === null || typeof value !== 'object') return JSON.stringify(value);
  return `{${Object.keys(value).sort().map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join(',')}}`;
};
const key = createPrivateKey({
  key: Buffer.concat([Buffer.from('302e020100300506032b657004220420', 'hex'), Buffer.alloc(32, 1)]), format: 'der', type: 'pkcs8',
});
const publicKey = 'ed' + createPublicKey(key).export({ format: 'der', type: 'spki' }).subarray(12).toString('hex');
const [kind, text = '{}'] = process.argv.slice(2);
const given = JSON.parse(text);
const providers = { ready: '02' + hex('key of provider one'), silent: '02' + hex('key of provider two') };
const message = kind === 'request'
  ? { type: 'inference_request', chain_id: 'toy-native-4', public_key: publicKey, nonce: 0, checkpoint: hex('serving root'),
    prompt: 'Hello', max_tokens: 16, price_atoms: '2500', expires_at_height: 100_000, ...given,
    provider: providers[given.provider ?? 'ready'] ?? given.provider }
  : { type: 'work', chain_id: 'toy-native-4', public_key: publicKey, ...given };
message.signature = sign(null, Buffer.from(canonical(message)), key).toString('hex');
console.log(JSON.stringify(message));
