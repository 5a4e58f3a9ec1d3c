"""The small data set that these tests train on."""

import importlib.util
from pathlib import Path

_spec = importlib.util.spec_from_file_location("dictionary", Path(__file__).parents[1] / "dictionary.py")
_dictionary = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_dictionary)

words, words_cache = _dictionary.words, _dictionary.words_cache
finished_run, run_copy = _dictionary.finished_run, _dictionary.run_copy
