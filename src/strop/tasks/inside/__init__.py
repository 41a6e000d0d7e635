"""What runs inside the sandbox, on the standard library alone.

`program` holds a model's program and answers calls; `checker` holds the tests and makes the calls.
The two are separate processes in separate sandboxes, and what passes between them is `plain`.
"""
