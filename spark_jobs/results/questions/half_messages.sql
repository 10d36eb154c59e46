-- How were half messages decided, how long did it take, and which were never decided?
-- decision: committed, rolled back, expired (nobody decided in time), or undecided (nobody has
-- decided yet). If the half message ended in another way: its verdict, such as cancelled.
-- pending: half messages that have not ended. p50_ms, max_ms: the time from the half message to its
-- decision. first_ms: the time of the oldest half message.
WITH halves AS (
  SELECT half.target, half.timestamp_ms, half.verdict IN ('pending', 'overdue') AS is_pending,
    CASE WHEN decided.kind = 'commit' THEN 'committed'
      WHEN decided.kind = 'rollback' OR half.verdict = 'rolled_back' THEN 'rolled back'
      WHEN decided.kind = 'expire' THEN 'expired'
      WHEN half.verdict IN ('pending', 'overdue') THEN 'undecided'
      ELSE half.verdict END AS decision,
    decided.timestamp_ms - half.timestamp_ms AS took_ms
  FROM newest AS half LEFT JOIN newest AS decided
    ON decided.partition = half.partition AND decided.offset = half.ended_by
  WHERE half.kind = 'prepare'
)
SELECT target, decision, count(*) AS records, count_if(is_pending) AS pending,
  percentile_approx(took_ms, 0.5) AS p50_ms, max(took_ms) AS max_ms,
  min(timestamp_ms) AS first_ms
FROM halves
GROUP BY target, decision
ORDER BY target, decision
