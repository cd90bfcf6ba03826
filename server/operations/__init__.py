"""Long work: taken up by one server at a time, in threads of its own, until it is done once."""
