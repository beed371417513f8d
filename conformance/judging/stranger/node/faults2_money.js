// Single faults, second series: wallet, stakes and history.
import { add, on } from './faults2_base.js';
const field = add('fields'), route = add('routes'), effect = add('effects'), relation = add('relations'), limit = add('limits'), refusal = add('refusals');

field('fld-memo-null', '2.1', 'NA-SEND-012', 'memo is null where the transfer had none', on('send', (o, x) => { if (!x.given) o.memo = null; }));
field('fld-fee-self', '2.1', 'NA-SEND-010', 'fee is null in a transfer to oneself', on('send', (o, x) => { if (x.self) o.fee = null; }));
field('fld-limit-echo-text', '4.1', 'NA-HISTORY-006', 'limit in the list of transactions is a string where the request gave one', on('transactions', (o, q) => { if (q.get('limit') !== null) o.limit = q.get('limit'); }));
field('fld-page-one', '4.1', 'NA-HISTORY-002', 'a page of one transaction has an object for transactions instead of an array', on('transactions', (o) => { if (o.transactions.length === 1) o.transactions = o.transactions[0]; }));
field('fld-page-empty', '4.1', 'NA-HISTORY-002', 'transactions is null on an empty page', on('transactions', (o) => { if (!o.transactions.length) o.transactions = null; }));
field('fld-multiplier-long', '2.1', 'NA-STAKE-014', 'stake.multiplier is a string for stakes of a year or more', on('stake', (o) => { if (o.stake.duration_days >= 365) o.stake.multiplier = o.stake.multiplier.toFixed(2); }));
field('fld-multiplier-two-lots', '2.1', 'NA-BALANCE-023', 'staking.multiplier is missing where two stakes run');
field('fld-unstake-date-null', '2.1', 'NA-UNSTAKE-010', 'available_date is null where all that was staked is unstaked');

route('rte-history-after-unstake', '4.1', 'NA-ROUTE-007', 'the list of transactions fails with 500 where an unstake is on the page', on('entry', (o) => { if (o.type === 'unstake') throw new RangeError('division by zero'); }));
route('rte-unstake-last-500', '4.1', 'NA-ROUTE-009', 'an unstake of all that is staked is made, and answered with 500');

effect('eff-amount-leading-zero', '2.1', 'NA-WALLET-010', 'a zero right after the decimal point of an amount is lost, so 1.05 moves 1.5');
effect('eff-amount-floor', '2.1', 'NA-WALLET-010', 'amounts are rounded down to atoms after a multiplication, so some, as 1.005, move one atom less');
effect('eff-send-repeated', '2.1', 'NA-WALLET-048', 'a transfer like an earlier one is taken for its repetition, and moves nothing');
effect('eff-no-memo-unlisted', '2.1', 'NA-WALLET-035', 'a transfer without a memo is not in the history');
effect('eff-new-address-unlisted', '4.1', 'NA-WALLET-047', 'a transfer to an address that had none before is not in the history of its sender');
effect('eff-history-first-account', '4.1', 'NA-WALLET-044', 'transfers of all accounts are in the history of the first one');
effect('eff-stake-pending-too', '2.1', 'NA-WALLET-043', 'what is staked today is pending as well');
effect('eff-stake-same-day', '2.1', 'NA-WALLET-014', 'a second stake with the same unlock_date replaces the first');
effect('eff-unstake-first-account', '3', 'NA-WALLET-018', 'an unstake takes from the first account, whichever token asks');
effect('eff-unstake-cents', '3', 'NA-WALLET-018', 'an unstake takes its amount from the stake rounded up to hundredths');
effect('eff-unstake-rest-loose', '2.1', 'NA-WALLET-028', 'after an unstake of a part the rest is locked until tomorrow only');
effect('eff-402-listed', '7.1', 'NA-ERR-026', 'a transfer that is refused with 402 is in the history');

let before = null;
relation('rel-unlock-earliest', '2.1', 'NA-WALLET-028', 'unlock_date of the balance is that of the stake that ends first');
relation('rel-402-available-total', '7.1', 'NA-ERR-020', 'available of a 402 counts what is staked too');
relation('rel-memo-latin1', '2.1', 'NA-WALLET-032', 'letters of a memo outside Latin-1 are question marks in the result', on('send', (o) => { o.memo = o.memo.replace(/[^\x00-\xff]/g, '?'); }));
relation('rel-stamp-previous', '2', 'GEN-019', 'timestamp of a transfer is that of the one before it', on('send', (o) => { const own = o.timestamp; o.timestamp = before ?? own; before = own; }));

limit('lim-stake-365', '4.1', 'NA-WALLET-027', 'a stake is locked for at most 365 days');
limit('lim-stake-week', '4.1', 'NA-WALLET-045', 'a stake for less than a week is locked for a week');

refusal('ref-amount-coerced', '4.1', 'NA-WALLET-040,NA-WALLET-041', 'an amount that is a text, a list or true is made a number');
refusal('ref-unstake-object-500', '4.1', 'NA-WALLET-042', 'an unstake of an object ends with 500');
refusal('ref-amount-huge', '7.1', 'NA-ERR-021', 'a transfer or a stake of more than 9007199254 units gets 400 instead of 402');
refusal('ref-send-negative', '3', 'NA-WALLET-037', 'a transfer of a negative amount is accepted, and takes from the receiver');
refusal('ref-stake-negative', '4.1', 'NA-WALLET-041', 'a stake of a negative amount is accepted');
refusal('ref-whole-integer', '4.1', 'NA-WALLET-038', 'an amount without a decimal point is refused');
refusal('ref-unstake-more', '3', 'NA-WALLET-024,NA-ERR-008', 'an unstake of more than is staked takes all, and is answered with success and the amount asked for');
