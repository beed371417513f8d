"""The documentation as a site (decision 0205): Sphinx's configuration, and checks of the pages."""
