-- Which ends have a time that only the proxy attests?
-- Counts by topic. A topic with LogAppendTime keeps the broker's time (attested). Any other topic
-- keeps the time that the proxy wrote (claimed). first_ms, last_ms: the range of the claimed times.
SELECT at_topic, count(*) AS records, count_if(is_attested) AS attested,
  count_if(NOT is_attested) AS claimed,
  min(ended_ms) FILTER (WHERE NOT is_attested) AS first_ms,
  max(ended_ms) FILTER (WHERE NOT is_attested) AS last_ms
FROM newest
WHERE is_attested IS NOT NULL
GROUP BY at_topic
ORDER BY claimed DESC, at_topic
