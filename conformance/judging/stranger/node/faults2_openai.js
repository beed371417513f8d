// Single faults, second series: OpenAI's routes. Each of them switches the routes on; --peculiar p-openai serves them without a fault.
import { add } from './faults2_base.js';
const field = add('fields'), guard = add('guards'), route = add('routes'), relation = add('relations'), limit = add('limits'), refusal = add('refusals');

field('oa-fld-refusal-later', '10', 'OA-CHAT-023', 'refusal is missing in the choices after the first');
field('oa-fld-delta-end', '10', 'OA-CHUNK-013', 'the chunk with the finish_reason has no delta');
field('oa-fld-error-param', '10', 'OA-ERROR-007', 'the refusal of an unknown model has no param');
guard('oa-grd-stream', '10', 'OA-AUTH-002', 'a stream is served with any key');
guard('oa-grd-model', '10', 'OA-AUTH-001', 'a single model is served with any key, the list is not');
route('oa-rte-encoded-model', '10', 'OA-ROUTE-002', 'a model whose id has a slash is not found where the slash is encoded');
refusal('oa-ref-empty-messages', '10', 'OA-REFUSE-001', 'a stream with an empty list of messages is accepted');
refusal('oa-ref-n-zero', '10', 'OA-REFUSE-003', 'n 0 counts as 1');
refusal('oa-ref-max-tokens-text', '10', 'OA-REFUSE-004', 'max_tokens as a text is accepted');
refusal('oa-ref-model-stream', '10', 'OA-REFUSE-006', 'a stream with an unknown model is accepted');
relation('oa-rel-created-start', '10', 'OA-CHAT-103', 'created is the time at which the server was started');
relation('oa-rel-usage-id', '10', 'OA-STREAM-005', 'the chunk with the usage has another id');
relation('oa-rel-usage-n', '10', 'OA-CHAT-112', 'total_tokens counts the first choice only');
relation('oa-rel-role-once', '10', 'OA-STREAM-015', 'only the first choice of a stream has the role');
relation('oa-rel-usage-null', '10', 'OA-STREAM-013', 'with include_usage the other chunks have no usage');
relation('oa-rel-same-id', '10', 'OA-CHAT-102', 'equal requests get the same id');
relation('oa-rel-logprob-positive', '10', 'OA-CHAT-115', 'logprob is a probability');
relation('oa-rel-finish-twice', '10', 'OA-STREAM-009', 'with n above 1 the finish_reason of each choice comes again at the end');
limit('oa-lim-max-completion', '10', 'OA-CHAT-114', 'max_completion_tokens is ignored');
limit('oa-lim-default-100', '10', 'OA-TEXT-113', 'a completion without max_tokens has up to 100 tokens');
limit('oa-lim-n-stream', '10', 'OA-STREAM-010', 'a stream has one choice, whatever n says');
limit('oa-lim-stop-string', '10', 'OA-CHAT-110', 'stop counts only as a list, not as a string');
