"""Values of a run that turn NaN or infinite: who watches for them, and what is done about a step that has some."""
