# Every target calls run.py, which works without make too (on Windows: py run.py demo).
# Options: make demo ARGS="--minutes 1", make demo TORCH_INDEX=https://download.pytorch.org/whl/cpu, make test ARGS=--slow
PYTHON ?= python3
ARGS ?=
TORCH_INDEX ?=
RUN = $(PYTHON) run.py
INDEX = $(if $(TORCH_INDEX),--torch-index $(TORCH_INDEX))

.PHONY: demo test lint bench docs setup clean

demo test bench docs:
	$(RUN) $@ $(INDEX) $(ARGS)

lint setup:
	$(RUN) $@ $(INDEX)

clean:
	$(RUN) clean
