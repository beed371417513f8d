// Single faults, second series: the native API and /rpc.
import { add, on } from './faults2_base.js';
const field = add('fields'), guard = add('guards'), route = add('routes'), effect = add('effects'), relation = add('relations'), limit = add('limits'), refusal = add('refusals');

field('fld-nt-zero-number', '2.2', 'NT-RULE-029,NT-RULE-011', 'an amount of an account is the number 0 where it is zero', on('nt-account', (o) => { for (const k in o.balance) if (o.balance[k] === '0') o.balance[k] = 0; }));
field('fld-nt-bond-null', '2.2', 'NT-RULE-055', 'the bond of one of the validators is null');
field('fld-nt-fee-number', '2.2', 'NT-RULE-029,NT-RULE-011', 'the fees in the list of blocks are numbers, in a single block strings');

guard('grd-rpc-batch', '4.2', 'NT-RULE-005', 'methods in a batch are not checked against the list of those allowed');
guard('grd-work-unsigned', '4.2', 'NT-RULE-039', 'a poll of a worker without a signature is answered with an attempt');

route('rte-newest-block', '4.2', 'NT-RULE-036,NT-ROUTE-007', 'the newest block cannot be read by its height');
route('rte-block-with-request', '4.2', 'NT-RULE-036,NT-ROUTE-007', 'a block that has an inference request fails with 500');
route('rte-artifact-dataset', '4.2', 'NT-ROUTE-014', 'the data set that the genesis names is not among the artifacts, the other files are');
route('rte-account-odd', '4.2', 'NT-ROUTE-008', 'keys that begin with 03 are refused');
route('rte-expired-404', '4.2', 'NT-ROUTE-011', 'an expired inference request is not found');
route('rte-login-post', '7.2', 'NT-RULE-010', 'an old login path answers POST with 405 instead of the redirect');
route('rte-rpc-validators-height', '4.2', 'NT-RULE-018', '/rpc refuses validators with a height');
route('rte-rpc-job', '4.2', 'NT-RULE-044,NT-RULE-004', 'the query path /job is unknown, /jobs is served');

effect('eff-nt-replay', '5', 'NT-RULE-051', 'a signed transaction with an earlier nonce is accepted, so one that is broadcast again takes its amount again');
effect('eff-nt-response-once', '3', 'ST-003', 'a completed response can be read once');

relation('rel-nt-id-is-hash', '2.2', 'NT-RULE-040,NT-RULE-013', 'the id of a request is the hash of its transaction');
relation('rel-nt-list-hash', '4.2', 'NT-RULE-035', 'the hash of a block is in capital letters in the list, and in small ones by itself');
relation('rel-nt-expired-pending', '3', 'ST-004', 'an expired request is shown as pending, without its refund');
relation('rel-nt-info-genesis', '2.2', 'NT-RULE-043', 'the inference information names the hash of the genesis without its white space');
relation('rel-nt-checkpoint-round', '4.2', 'NT-RULE-058', 'the round of the training adapter counts from 0, that of the updates from 1');
relation('rel-nt-dataset-minified', '4.2', 'NT-RULE-056', 'the data set is served without its white space, so its digest is another one');
relation('rel-nt-rpc-cached', '4.2', 'NT-RULE-057', 'answers of /rpc are cached by method without the parameters');
relation('rel-reference-present', '4.2', 'NT-RULE-045', 'the view of the earlier chain lists blocks of the present one');

limit('lim-before-alone', '4.2', 'NT-PAGE-002', 'before of the blocks is ignored where there is no limit');
limit('lim-blocks-cached', '4.2', 'NT-PAGE-001', 'pages of blocks are cached by before without limit');
limit('lim-updates-cut-first', '4.2', 'NT-PAGE-004,NT-PAGE-005', 'the page of updates is cut to limit before those from before on are left out');
limit('lim-updates-oldest', '4.2', 'NT-PAGE-008', 'a short page of updates without before has the oldest');

refusal('ref-work-empty-500', '4.2', 'NT-RULE-032', 'a worker message that is JSON without a payload ends with 500');
refusal('ref-nt-unknown-pending', '4.2', 'NT-RULE-041', 'an inference request that nobody has made is shown as pending');
