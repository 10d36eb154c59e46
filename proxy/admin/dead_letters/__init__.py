"""Dead letters on the admin port: listed, shown, and replayed by threads of their own.

May use what the admin port's API may use. Begin with `letter_calls`; `kafka_letters` asks the
broker, `replay_jobs` keeps account of replays.
"""
