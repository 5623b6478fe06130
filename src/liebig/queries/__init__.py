"""Query generation: decoding, consistency filters, endpoints, inspection."""
