"""Images in the origin: records, registration, what hosts use of them."""
