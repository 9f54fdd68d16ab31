"""Other services as flows need them: narrow interfaces, with what implements each."""
