"""A batch: a file's lines as jobs, and a file of what became of them (docs/batch.md).

===================================== ======================================================================================
``lines``, ``table``, ``survey``      the input: numbered records of JSON lines or CSV, counted and checked
``requests``, ``prompts``, ``models`` what a line asks for, by OpenAI's form or the plain one; chat messages as a prompt
``jobs``, ``bad_line``                the job of a line, or why there is none
``journal``, ``opening``              what later runs have to know, and whether a command may go on
``window``, ``line_set``, ``counts``  the lines under way, the lines that are done, and what they spent
``post``, ``following``, ``patience`` Redis: sending, asking for results, bearing outages
``sending``, ``collecting``, ``run``  from the input to the queues, from the results to the output, in turns
``result_lines``, ``output``          what is written for a line, and the files
``progress``, ``assembly``            who is told, and how the parts are put together
===================================== ======================================================================================
"""
