"""The model API `scripted`: answers that follow from the conversation alone, with no key and no network."""
