//! Reference models, fault injectors and seeded data for tests.
