"""A person's answers to a sample of the target's images, and what they say. `summary(folder)` is for pages."""

from adamatch.ask.estimate import summary as summary
