"""What a run leaves behind, each form made from one document: `report.json`."""
