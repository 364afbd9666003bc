"""What browsers and programs see of jobs over HTTP."""
