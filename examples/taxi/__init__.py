"""Yellow-taxi trips of New York: hourly tips per pick-up zone, with late, rejected and malformed records kept aside."""
