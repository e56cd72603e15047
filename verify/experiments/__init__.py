"""Published experiments, repeated: trained networks beside constructed ones and beside what is certified."""
