"""Does it learn in context? Evaluation, statistics, figures and videos of trials."""
