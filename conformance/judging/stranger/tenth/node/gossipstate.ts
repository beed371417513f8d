// What came in by gossip; the metrics show the sums.
export const gossip = { submitted: 0, accepted: 0 };
