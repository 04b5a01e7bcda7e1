//! A seeded getrandom, for the sweep binary alone: same seed, same schedule.
