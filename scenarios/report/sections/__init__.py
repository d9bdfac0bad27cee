"""The sections of a run's page, one module each: the page finds every module here, and shows its `SECTION`."""
