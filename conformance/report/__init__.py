"""The reports of a run. Every format is made from one document, `report.json`."""
