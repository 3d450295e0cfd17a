"""A small transformer on bytes: our own experiment, for people who come from AdamW."""
